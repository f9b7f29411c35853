{% macro run_clock() %}
  {#- The instant of this run as a literal: one value for all that a run writes. -#}
  {{ return("timestamp'" ~ run_started_at.strftime('%Y-%m-%d %H:%M:%S.%f') ~ "Z'") }}
{% endmacro %}


{% macro judged_progress(record_type) %}
  {#- What the judged table `this` holds already.

  A pass is one reading of all of Bronze under one contract; batches that come later under the same
  contract join it. Returns `pass`, `after_batch` (the newest batch of that pass, or none: judge
  everything, because nothing is there or the contract changed) and `judged_at`, this run's instant
  as a literal, after every earlier one, also when the clock went back. -#}
  {% set progress = {'pass': 1, 'after_batch': none, 'judged_at': run_clock()} %}
  {% if execute and is_incremental() %}
    {% set newest = run_query(
      "select max(_verdict_pass), max_by(_verdict_contract, _verdict_pass), max(_batch_id), "
      ~ "date_format(max(_judged_at) + interval 1 microsecond, 'yyyy-MM-dd HH:mm:ss.SSSSSS') from "
      ~ this ~ " where _verdict_pass = (select max(_verdict_pass) from " ~ this ~ ")").rows[0] %}
    {% if newest[0] is not none %}
      {% if newest[1] == verdict_contract(record_type) %}
        {% do progress.update({'pass': newest[0], 'after_batch': newest[2]}) %}
      {% else %}
        {% do progress.update({'pass': newest[0] + 1}) %}
      {% endif %}
      {% do progress.update({
        'judged_at': "greatest(" ~ run_clock() ~ ", timestamp'" ~ newest[3] ~ "Z')"
      }) %}
    {% endif %}
  {% endif %}
  {{ return(progress) }}
{% endmacro %}


{% macro latest_pass(record_type) %}
  {#- The number of the newest pass over a record type, as a literal: Delta knows it from statistics. -#}
  {% if not execute %}{{ return(1) }}{% endif %}
  {% set newest = run_query("select max(_verdict_pass) from " ~ ref(record_type ~ '_judged')).rows[0][0] %}
  {{ return(newest or 1) }}
{% endmacro %}


{% macro kept() %}
  {#- What the table of the model at hand holds, asked once: `contracts` (the least and the greatest
  text of its verdict contracts) and `done`, the newest instant of its watermark column. -#}
  {% if model.get('_kept') is none %}
    {% set kept = {'contracts': [none, none], 'done': none} %}
    {% set relation = load_relation(this) %}
    {% if relation is not none and relation.is_table %}
      {% set row = run_query(
        "select min(_verdict_contract), max(_verdict_contract), date_format(max("
        ~ config.get('meta').watermark ~ "), 'yyyy-MM-dd HH:mm:ss.SSSSSS') from " ~ relation).rows[0] %}
      {% do kept.update({'contracts': [row[0], row[1]], 'done': row[2]}) %}
    {% endif %}
    {% do model.update({'_kept': kept}) %}
  {% endif %}
  {{ return(model['_kept']) }}
{% endmacro %}


{% macro done_until() %}
  {#- The newest instant of the watermark column of `this` as a literal, or none: rows up to it are
  worked in. -#}
  {% if not (execute and is_incremental()) %}{{ return(none) }}{% endif %}
  {% set newest = kept().done %}
  {{ return("timestamp'" ~ newest ~ "Z'" if newest else none) }}
{% endmacro %}


{% macro checked_until() %}
  {#- The instant of the newest run whose laws were checked, as a literal, or none. The laws come last, so
  all that was judged until then is worked in everywhere. No `ref`: what asks comes before the laws. -#}
  {% if not execute %}{{ return(none) }}{% endif %}
  {% set node = graph.nodes['model.lakehouse.law_results'] %}
  {% set laws = adapter.get_relation(database=none, schema=node.schema, identifier=node.alias) %}
  {% if laws is none %}{{ return(none) }}{% endif %}
  {% set checked = run_query(
    "select date_format(max(checked_at), 'yyyy-MM-dd HH:mm:ss.SSSSSS') from " ~ laws).rows[0][0] %}
  {{ return("timestamp'" ~ checked ~ "Z'" if checked else none) }}
{% endmacro %}


{% macro is_after(column, done) %}
  {#- A condition: rows newer than `done`, or every row where nothing is done yet. -#}
  {{- column ~ ' > ' ~ done if done else 'true' -}}
{% endmacro %}


{% macro should_full_refresh() %}
  {#- Overrides dbt's own: a table that derives from verdicts is built anew when a contract changed,
  so that it never mixes verdicts of two contracts. Evidence (full_refresh: false) never is. -#}
  {% set configured = config.get('full_refresh') %}
  {% if configured is not none %}{{ return(configured) }}{% endif %}
  {% if flags.FULL_REFRESH %}{{ return(true) }}{% endif %}
  {% set record_types = config.get('meta', {}).get('verdicts_of') %}
  {% if not execute or not record_types %}{{ return(false) }}{% endif %}
  {% set found = kept().contracts %}
  {% set current = own_contracts() %}
  {{ return(found[0] is not none and (found[0] != current or found[1] != current)) }}
{% endmacro %}
