{% macro contract_rules() %}
  {#- The rules of every contract as rows. -#}
  {% set rows = [] %}
  {% for record_type, terms in contracts().items() %}
    {% for rule in terms.rules %}
      {% do rows.append('(' ~ [
        sql_string(record_type), sql_string(rule.code), loop.index, sql_string(rule.severity),
        sql_string(rule.stage), sql_string(rule.reason), sql_string(rule.on_null),
        'true' if rule.stops else 'false',
        sql_string(rule.when or 'misfit: ' ~ rule.misfit | join(', ')),
        sql_string(rule.why), sql_string(rule.fix), sql_string(rule.owner or terms.owner),
        sql_string(rule.since), sql_string(terms.version),
        sql_string(verdict_contract(record_type))
      ] | join(', ') ~ ')') %}
    {% endfor %}
  {% endfor %}
  select *
  from values
    {{ rows | join(',\n    ') if rows else "('', '', 0, '', '', '', '', false, '', '', '', '', '', '', '')" }}
  as rules (
    record_type, rule_code, rule_order, severity, stage, reason, on_null, is_stopping, fault,
    why, fix, owner, since, contract_version, verdict_contract
  )
{% endmacro %}
