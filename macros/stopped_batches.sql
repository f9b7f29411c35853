{% macro stopped_batches(record_type) %}
  {#- Batches and datasets of which a larger share was refused than the contract's `stop_above`: what they
  have that is accepted is held back until somebody releases it. Told from the newest verdicts alone, so
  that a contract that is mended releases them too. What was sent again is no delivery of a feed. -#}
  {% set releases = ref('stg_batch_releases') %}
  {% set terms = contract(record_type) %}
  select
    judged._dataset,
    judged._batch_id
  from ({{ latest_verdicts(record_type) }}) as judged
  inner join {{ ref('stg_batches') }} as batches on judged._batch_id = batches.batch_id
  left anti join {{ releases }} as releases
    on
      releases.record_type = '{{ record_type }}'
      and judged._dataset = releases.dataset
      and judged._batch_id = releases.batch_id
  where batches.command <> 'replay'
  group by judged._dataset, judged._batch_id
  having
    count(*) >= {{ terms.stop_from or 1 }}
    and count_if(size(judged.failure_reasons) > 0) * 100 > {{ (terms.stop_above or '100%').rstrip('% ') }} * count(*)
{% endmacro %}
