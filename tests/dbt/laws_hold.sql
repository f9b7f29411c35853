-- The one test of error severity: it stands behind every table, so that a broken law keeps nothing
-- from being written and the run still exits non-zero.
select
  law,
  record_type,
  batch_id,
  offenders,
  examples
from {{ ref('law_results') }}
where offenders > 0
