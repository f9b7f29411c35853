{% macro run_clock() %}
  {#- The instant of this run as a literal: one value for all that a run writes. -#}
  {{ return("timestamp'" ~ run_started_at.strftime('%Y-%m-%d %H:%M:%S.%f') ~ "Z'") }}
{% endmacro %}


{% macro judged_progress(record_type) %}
  {#- What the judged table `this` holds already.

  Returns `after_batch`: the newest batch that the current contract has judged, provided that its
  verdicts are the newest ones. None means: judge everything, because nothing is there or because
  the contract changed. And `judged_at`: this run's instant as a literal, after every earlier one,
  also when the clock went back. -#}
  {% set progress = {'after_batch': none, 'judged_at': run_clock()} %}
  {% if execute and is_incremental() %}
    {% set passes = run_query(
      "select _verdict_contract, max(_batch_id) as batch_id, max(_judged_at) as judged_at, "
      ~ "date_format(max(_judged_at) + interval 1 microsecond, 'yyyy-MM-dd HH:mm:ss.SSSSSS') as next_at "
      ~ "from " ~ this ~ " group by _verdict_contract order by judged_at desc limit 1") %}
    {% if passes and passes.rows | length %}
      {% set newest = passes.rows[0] %}
      {% if newest[0] == verdict_contract(record_type) %}
        {% do progress.update({'after_batch': newest[1]}) %}
      {% endif %}
      {% do progress.update({
        'judged_at': "greatest(" ~ run_clock() ~ ", timestamp'" ~ newest[3] ~ "Z')"
      }) %}
    {% endif %}
  {% endif %}
  {{ return(progress) }}
{% endmacro %}


{% macro done_until(column) %}
  {#- The newest instant in `column` of `this` as a literal, or none: rows up to it are worked in. -#}
  {% if not (execute and is_incremental()) %}{{ return(none) }}{% endif %}
  {% set newest = run_query(
    "select date_format(max(" ~ column ~ "), 'yyyy-MM-dd HH:mm:ss.SSSSSS') from " ~ this).rows[0][0] %}
  {{ return("timestamp'" ~ newest ~ "Z'" if newest else none) }}
{% endmacro %}


{% macro should_full_refresh() %}
  {#- Overrides dbt's own: a table that derives from verdicts is built anew when a contract changed,
  so that it never mixes verdicts of two contracts. Evidence (full_refresh: false) never is. -#}
  {% set configured = config.get('full_refresh') %}
  {% if configured is not none %}{{ return(configured) }}{% endif %}
  {% if flags.FULL_REFRESH %}{{ return(true) }}{% endif %}
  {% set record_types = config.get('meta', {}).get('verdicts_of') %}
  {% if not execute or not record_types %}{{ return(false) }}{% endif %}
  {% if model.get('_contract_changed') is none %}
    {% set relation = load_relation(this) %}
    {% set changed = namespace(value=false) %}
    {% if relation is not none and relation.is_table %}
      {% set kept = run_query(
        "select min(_verdict_contract), max(_verdict_contract) from " ~ relation).rows[0] %}
      {% set current = verdict_contracts(record_types) %}
      {% set changed.value = kept[0] is not none and (kept[0] != current or kept[1] != current) %}
    {% endif %}
    {% do model.update({'_contract_changed': changed.value}) %}
  {% endif %}
  {{ return(model['_contract_changed']) }}
{% endmacro %}
