{% macro lake_path() %}
  {#- The lake's folder: LAKE (relative to where dbt was started), else lake/ beside dbt_project. -#}
  {% set lake = env_var('LAKE', env_var('PWD', '.') ~ '/../lake') %}
  {{ return(lake if lake.startswith('/') or '://' in lake else env_var('PWD', '.') ~ '/' ~ lake) }}
{% endmacro %}


{% macro spark__create_schema(relation) %}
  {#- Overrides dbt-spark's: a schema lies at <lake>/<schema>, and what is on disk is in the catalog
  before dbt asks which tables exist. Without it a table would be built anew over its data. -#}
  {% do register_lake([relation.schema]) %}
{% endmacro %}


{% macro register_lake(schemas=[]) %}
  {#- Make the catalog say what the lake's folders hold: schemas at their folders, and every Delta
  table that lies in them. What the catalog knows already is left as it is. -#}
  {% set lake = lake_path() %}
  {% set on_disk = run_query(
    "select distinct regexp_extract(_metadata.file_path, '/([^/]+)/[^/]+/_delta_log/', 1), "
    ~ "regexp_extract(_metadata.file_path, '/([^/]+)/_delta_log/', 1) "
    ~ "from text.`" ~ lake.replace('`', '``') ~ "/*/*/_delta_log/*.json`").rows %}
  {% set schemas = (schemas + ['bronze', 'silver', 'marts']) | unique | list %}
  {% for schema in schemas %}
    {% set folder = (lake ~ '/' ~ schema).replace("'", "\\'") %}
    {% do run_query("create schema if not exists " ~ schema ~ " location '" ~ folder ~ "'") %}
    {% set known = run_query("show tables in " ~ schema).columns[1].values() | list %}
    {% for row in on_disk if row[0] == schema and row[1] not in known %}
      {% do run_query("create table if not exists " ~ schema ~ ".`" ~ row[1] ~ "` using delta location '"
        ~ folder ~ '/' ~ row[1] ~ "'") %}
    {% endfor %}
  {% endfor %}
{% endmacro %}


{% macro fit_session() %}
  {#- Set what a small lake needs, see var small_lake in dbt_project.yml, where dbt was called by hand.
  `lakehouse` has fitted its session before, and a server's sessions are not ours to set. -#}
  {% if adapter.config.credentials.method == 'session' and not env_var('LAKEHOUSE_SESSION', '') %}
    {% set small = var('small_lake') %}
    {% set lake = lake_path().replace('`', '``') %}
    {% set bytes = run_query(
      "select sum(length) from binaryFile.`" ~ lake ~ "/*/*/{*.parquet,*/*.parquet,_delta_log/*.json}`"
    ).rows[0][0] %}
    {% for name, value in small.settings.items() if bytes < small.bytes %}
      {% do run_query("set " ~ name ~ "=" ~ value) %}
    {% endfor %}
  {% endif %}
{% endmacro %}


{% macro start_run() %}
  {#- on-run-start: rules that cannot work stop the run before rows move, and the catalog knows every
  table of the lake. -#}
  {% if execute %}
    {% do fit_session() %}
    {% do vet_rules() %}
    {% do register_lake() %}
  {% endif %}
{% endmacro %}
