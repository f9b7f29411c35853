{{ config(materialized='table') }}
with

shipped as (
  select * from {{ ref('shipped_codes') }}
),

loaded as (
  select * from {{ ref('stg_codice_codes') }}
),

every_edition as (
  select
    list_id,
    list_version,
    cited_as,
    list_uri,
    code,
    name_es,
    name_en,
    cast(null as string) as source_file,
    cast(null as string) as file_sha256,
    cast(null as timestamp) as loaded_at
  from shipped
  union all
  select
    list_id,
    list_version,
    cited_as,
    list_uri,
    code,
    name_es,
    name_en,
    source_file,
    file_sha256,
    loaded_at
  from loaded
),

ranked as (
  select
    *,
    -- A version that was published anew replaces its earlier edition as a whole: a code that is
    -- gone from it is gone. What the project ships stands until the list itself is loaded.
    dense_rank() over (
      partition by list_id, list_version
      order by loaded_at desc nulls last, file_sha256 desc
    ) as edition,
    -- Versions are compared number by number: 2.10 comes after 2.9 and 2.09.
    dense_rank() over (
      partition by list_id
      order by
        transform(split(list_version, '[.]'), part -> try_cast(part as int)) desc,
        list_version desc
    ) as version_age
  from every_edition
),

codes as (
  select
    * except (edition, version_age),
    coalesce(name_es, name_en) as code_name,
    version_age = 1 as is_newest_version
  from ranked
  where edition = 1
)

select * from codes
