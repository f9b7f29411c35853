{#- The laws, one macro each, as predicates over what is known of one thing (see law_results), or as
the name of the law that one row breaks by itself (see observations). None is ever null. -#}

{% macro law_capture() %}
  {#- Law 1: the records found in a file by other code are the Bronze rows of that file. -#}
  kind = 'file' and found <> captured
{% endmacro %}


{% macro law_complement() %}
  {#- Law 2: every Bronze record that was not purged has one newest verdict and stands in exactly one of
  accepted and quarantine, and a purged one in nothing; a Silver table shows once each what it owes, and
  nothing else. -#}
  (kind = 'record' and bronze + judged + accepted + quarantined > 0
    and (bronze <> 1 or judged <> 1 or accepted + quarantined <> 1 or quarantined <> refused))
  or shown <> due
{% endmacro %}


{% macro law_reasons() %}
  {#- Law 3: the quarantine says what the verdict says, and an accepted record has no reason. What a
  row alone can break is in law_verdict. -#}
  kind = 'record' and coalesce(least_reasons <> most_reasons, false)
{% endmacro %}


{% macro law_disposition() %}
  {#- Law 4: a record that is named as a cause exists, and a key has one live record at most. What a
  row alone can break is in law_named_cause. -#}
  (kind = 'record' and cause > 0 and judged = 0) or (kind = 'key' and live > 1)
{% endmacro %}


{% macro law_idempotence() %}
  {#- Law 6: no file content is captured twice and no dead letter written twice. -#}
  kind in ('content', 'letter') and known > 1
{% endmacro %}


{% macro law_evidence() %}
  {#- Law 7: every refused record has its dead letter, and every dead letter of a record its record. -#}
  kind = 'record' and ((refused > 0 and letter = 0) or (letter > 0 and bronze + emptied = 0))
{% endmacro %}


{% macro law_isolation() %}
  {#- Law 8: what a failed file cost is known: it has its dead letter. -#}
  kind = 'failed file' and failed > 0 and letter = 0
{% endmacro %}


{% macro law_payload() %}
  {#- Law 5: a record without a text was purged. What a row alone can break is in law_payload_text. -#}
  kind = 'record' and emptied > 0 and purged = 0
{% endmacro %}


{% macro law_payload_text() %}
  {#- Law 5: the payload, where it was not purged, still is what was cut out of the file. That it was the
  file's bytes at that offset is checked by the tests of capture. -#}
  case
    when
      coalesce(_payload_bytes, cast(payload as binary)) is not null and
      {% if var('audit') != 'full' %}
      _ingested_at >= (select max(started_at) from {{ ref('stg_batches') }}) and
      {% endif %}
      not (sha2(coalesce(_payload_bytes, cast(payload as binary)), 256) <=> _payload_sha256)
      then 'payload'
  end
{% endmacro %}


{% macro law_verdict(record_type) %}
  {#- Laws 3 and 9 within a verdict: neither array is null, every code is of the contract, and a text
  that did not convert has a code. -#}
  {% set codes = (contract(record_type).rules or []) | map(attribute='code') | list %}
  case
    when
      failure_reasons is null or warnings is null
      or size(array_except(concat(failure_reasons, warnings), array('{{ codes | join("', '") }}'))) > 0
      then 'reasons'
    when size(_misfits) > 0 and size(failure_reasons) + size(warnings) = 0 then 'fidelity'
  end
{% endmacro %}


{% macro law_named_cause() %}
  {#- Law 4 within a disposition: it is one of six; `current`, `waiting` and `held` name no cause (what
  waits waits for a record that is not there, what is held for a person), the others do. -#}
  case
    when
      coalesce(disposition, '') not in
        ('current', 'superseded', 'duplicate', 'withdrawn', 'waiting', 'held')
      or (disposition in ('current', 'waiting', 'held')) <> (by_record_id is null)
      then 'disposition'
  end
{% endmacro %}


{% macro law_fail_rules(record_type) %}
  {#- Rules of severity `fail`: the record is quarantined, and the run exits non-zero as long as it is
  of the newest verdicts that struck. -#}
  {% set codes = (contract(record_type).rules or []) | selectattr('severity', 'equalto', 'fail') | map(attribute='code') | list %}
  {% if codes %}
  case
    when
      arrays_overlap(failure_reasons, array('{{ codes | join("', '") }}'))
      and _judged_at >= {{ latest_judged_at(record_type) }}
      then 'fail_rules'
  end
  {% else %}
  cast(null as string)
  {% endif %}
{% endmacro %}
