{% macro spark__list_relations_without_caching(relation) %}
  {#- Overrides dbt-spark's for the target `lint`, which starts no Spark: every table is there. -#}
  {% if target.name == 'lint' %}
    {% set rows = [] %}
    {% for node in graph.nodes.values() if node.resource_type == 'model' and node.schema == relation.schema %}
      {% do rows.append([node.schema, node.alias, false, 'Provider: delta']) %}
    {% endfor %}
    {{ return(rows) }}
  {% endif %}
  {% call statement('list_relations_without_caching', fetch_result=True) %}
    show table extended in {{ relation.schema }} like '*'
  {% endcall %}
  {{ return(load_result('list_relations_without_caching').table) }}
{% endmacro %}


{% macro run_query(sql) %}
  {#- Overrides dbt's for the target `lint`, which starts no Spark: every answer is one row of nulls. -#}
  {% if target.name == 'lint' %}{{ return({'rows': [[none] * 4], 'columns': [{}, {}]}) }}{% endif %}
  {% call statement('run_query_statement', fetch_result=true, auto_begin=false) %}
    {{ sql }}
  {% endcall %}
  {{ return(load_result('run_query_statement').table) }}
{% endmacro %}
