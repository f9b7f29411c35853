{% macro law_payload(record_type) %}
  {#- Law 5: the payload still is what was cut out of the file: its hash and its length. That it was
  the file's bytes at that offset is checked when it is captured. Only batches of the newest pass are
  read, all of them with `audit: full`. -#}
  select
    'payload' as law,
    '{{ record_type }}' as record_type,
    _batch_id as batch_id,
    _record_id as offender
  from {{ ref('stg_' ~ record_type) }}
  where
    not (sha2(coalesce(_payload_bytes, cast(payload as binary)), 256) <=> _payload_sha256)
    {% if var('audit') != 'full' %}
    and _batch_id in (
      select _batch_id from {{ record_type }}_verdicts
      where _judged_at = (select max(_judged_at) from {{ record_type }}_verdicts)
    )
    {% endif %}
{% endmacro %}
