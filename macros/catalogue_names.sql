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
  {%- for name in listed_codes(fields) %}
  {%- set uri = prefix ~ name ~ '_list_uri' %}
    coalesce(
      element_at(catalogue.code_names, concat({{ cited_version(uri) }}, '|', {{ prefix }}{{ name }})),
      element_at(catalogue.code_names, concat({{ cited_list(uri) }}, '|', {{ prefix }}{{ name }}))
    ) as {{ name }}_name,
  {%- endfor %}
{% endmacro %}


{% macro listed_codes(fields) %}
  {#- Names of the codes among fields whose list is known beside them, in `<code>_list_uri`. -#}
  {% set names = fields | map(attribute='name') | list %}
  {% set found = [] %}
  {% for name in names if name ~ '_list_uri' in names %}{% do found.append(name) %}{% endfor %}
  {{ return(found) }}
{% endmacro %}


{% macro cited_version(uri) %}
  {#- The version of a list that a `listURI` cites, `ContractCode-2.08`; empty where it is no address of one. -#}
regexp_extract({{ uri }}, '([^/]+)[.]gc$', 1)
{%- endmacro %}


{% macro cited_list(uri) %}
  {#- The list that a `listURI` cites, `ContractCode`; empty where it is no address of one. -#}
regexp_extract({{ uri }}, '([^/]+)-[^-/]+[.]gc$', 1)
{%- endmacro %}


{% macro missing_lists(parents) %}
  {#- Lists that records judged since the last whole run cite, and of which no version is here: `list_id`
  and one `list_uri`, one row each. Args: the record types whose children are there. -#}
  {% set done = checked_until() %}
  select
    list_id,
    min(list_uri) as list_uri
  from (
    select
      list_uri,
      {{ cited_version('list_uri') }} as list_version,
      coalesce(nullif({{ cited_list('list_uri') }}, ''), list_uri) as list_id
    from (
      {% for record_type in parents %}
      -- Each record of a feed cites the same few lists.
      select distinct explode(_cited_lists) as list_uri
      from {{ ref(record_type ~ '_children') }}
      where {{ is_after('_judged_at', done) }}
      union all
      {% endfor %}
      select explode(cast(array() as array<string>)) as list_uri
    ) as cited
    where trim(list_uri) <> ''
  ) as lists
  left anti join (
    select explode(array(list_id, cited_as)) as name
    from {{ ref('stg_codice_codes') }}
    {% if not execute or load_relation(ref('shipped_codes')) is not none %}
    union all
    select explode(array(list_id, cited_as)) as name
    from {{ ref('shipped_codes') }}
    {% endif %}
  ) as known
    on lists.list_id = known.name or lists.list_version = known.name
  group by list_id
{% endmacro %}


{% macro catalogue_version() %}
  {#- What the catalogue is: tables that show names are built anew when it changes. -#}
  {% if not execute %}{{ return('') }}{% endif %}
  {% set row = run_query("select count(*), max(loaded_at) from " ~ ref('codice_codes')).rows[0] %}
  {{ return('catalogue of ' ~ row[0] ~ (', ' ~ row[1] if row[1] else '')) }}
{% endmacro %}
