{% macro contract_rules() %}
  {#- The rules of every contract as rows, those of children under their table's name and those of targets of
  messages under the target's. -#}
  {% set rows = [] %}
  {% set owners = [] %}
  {% for record_type, terms in contracts().items() %}
    {% do owners.append([record_type, terms, terms.rules, verdict_contract(record_type)]) %}
    {% for child in children_of(record_type) %}
      {% do owners.append([child.table, terms, child.rules, verdict_contract('children_of_' ~ record_type)]) %}
    {% endfor %}
  {% endfor %}
  {% for name, terms in message_targets().items() if terms.rules %}
    {% set verdict = terms.version ~ '+' ~ local_md5(tojson(terms.rules, sort_keys=true))[:12] %}
    {% do owners.append([name, terms, terms.rules, verdict]) %}
  {% endfor %}
  {% for record_type, terms, rules, verdict in owners %}
    {% for rule in rules %}
      {% do rows.append('(' ~ [
        sql_string(record_type), sql_string(rule.code), loop.index, sql_string(rule.severity),
        sql_string(rule.stage or 'transformation'), sql_string(rule.reason), sql_string(rule.on_null),
        'true' if rule.stops else 'false',
        sql_string(rule.when or 'misfit: ' ~ rule.misfit | join(', ')),
        sql_string(rule.why), sql_string(rule.fix), sql_string(rule.owner or terms.owner),
        sql_string(rule.since), sql_string(terms.version),
        sql_string(verdict)
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
