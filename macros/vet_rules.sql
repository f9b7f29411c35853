{% macro vet_rules() %}
  {#- Refuse contracts whose rules cannot work, as far as their text tells: ingest and `lakehouse
  contract check` also ask Spark whether they parse and whether their columns exist. -#}
  {% set problems = [] %}
  {% set severities = ['warn', 'quarantine', 'drop', 'fail'] %}
  {% for record_type, terms in contracts().items() %}
    {% set field_names = terms.fields | map(attribute='name') | list %}
    {% set ns = namespace(codes=[]) %}
    {% for rule in terms.rules %}
      {% set place = record_type ~ ', rule ' ~ rule.code ~ ': ' %}
      {% if rule.code in ns.codes %}{% do problems.append(place ~ 'the code is there twice') %}{% endif %}
      {% do ns.codes.append(rule.code) %}
      {% if rule.on_null not in ['refuse', 'pass'] %}
        {% do problems.append(place ~ 'on_null must be refuse or pass; there is no default') %}
      {% endif %}
      {% if rule.severity not in severities %}
        {% do problems.append(place ~ 'severity must be one of ' ~ severities | join(', ')) %}
      {% endif %}
      {% if not rule.when and not rule.misfit %}
        {% do problems.append(place ~ 'it has neither when nor misfit') %}
      {% endif %}
      {% for name in rule.misfit or [] if name not in field_names %}
        {% do problems.append(place ~ 'misfit names ' ~ name ~ ', which is no field') %}
      {% endfor %}
      {% if modules.re.search(
        '\\b(rand|randn|random|uuid|now|current_timestamp|current_date|current_time|localtimestamp'
        ~ '|monotonically_increasing_id|input_file_name|spark_partition_id|shuffle)\\b',
        rule.when or '', modules.re.IGNORECASE) %}
        {% do problems.append(place ~ 'it is not deterministic: judged again, a record would get another verdict') %}
      {% endif %}
    {% endfor %}
  {% endfor %}
  {% if problems %}
    {% do exceptions.raise_compiler_error('Contracts with rules that cannot work:\n  ' ~ problems | join('\n  ')) %}
  {% endif %}
{% endmacro %}
