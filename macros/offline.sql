{% macro spark__list_relations_without_caching(relation) %}
  {#- Overrides dbt-spark's for the target `lint`, which starts no Spark: every table is there. -#}
  {% if target.name != 'lint' %}{{ return(dbt_spark.spark__list_relations_without_caching(relation)) }}{% endif %}
  {% set rows = [] %}
  {% for node in graph.nodes.values() if node.resource_type == 'model' and node.schema == relation.schema %}
    {% do rows.append([node.schema, node.alias, false, 'Provider: delta']) %}
  {% endfor %}
  {{ return(rows) }}
{% endmacro %}


{% macro run_query(sql) %}
  {#- Overrides dbt's for the target `lint`, which starts no Spark: every answer is one row of nulls. -#}
  {% if target.name != 'lint' %}{{ return(dbt.run_query(sql)) }}{% endif %}
  {{ return({'rows': [[none] * 4], 'columns': [{}, {}]}) }}
{% endmacro %}
