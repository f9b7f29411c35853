{% macro catalogue_names() %}
  {#- A CTE `catalogue` of one row: the name of every code as one map, so that a table with many codes
  costs one join. Keys are `<list and version>|<code>`, and `<list>|<code>` for its newest version. -#}
catalogue as (
  select map_from_entries(collect_list(struct(code_key, code_name))) as code_names
  from (
    select
      code_key,
      max(code_name) as code_name
    from (
      select
        concat(cited_as, '|', code) as code_key,
        code_name
      from {{ ref('codice_codes') }}
      union all
      select
        concat(list_id, '|', code) as code_key,
        code_name
      from {{ ref('codice_codes') }}
      where is_newest_version
    ) as keyed
    where code_key is not null and code_name is not null
    group by code_key
  ) as named
)
{%- endmacro %}


{% macro named_codes(fields, prefix='') %}
  {#- For each code whose list is known beside it, its name in that version of the list, or else in the
  newest: columns `<code>_name`, each with a comma behind it. -#}
  {%- set names = fields | map(attribute='name') | list -%}
  {%- for name in names if name ~ '_list_uri' in names %}
    coalesce(
      element_at(
        catalogue.code_names,
        concat(regexp_extract({{ prefix }}{{ name }}_list_uri, '([^/]+)[.]gc$', 1), '|', {{ prefix }}{{ name }})
      ),
      element_at(
        catalogue.code_names,
        concat(regexp_extract({{ prefix }}{{ name }}_list_uri, '([^/]+)-[^-/]+[.]gc$', 1), '|', {{ prefix }}{{ name }})
      )
    ) as {{ name }}_name,
  {%- endfor %}
{% endmacro %}


{% macro catalogue_version() %}
  {#- What the catalogue is: tables that show names are built anew when it changes. -#}
  {% if not execute %}{{ return('') }}{% endif %}
  {% set row = run_query("select count(*), max(loaded_at) from " ~ ref('codice_codes')).rows[0] %}
  {{ return('catalogue of ' ~ row[0] ~ (', ' ~ row[1] if row[1] else '')) }}
{% endmacro %}
