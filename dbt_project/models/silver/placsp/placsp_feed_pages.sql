{{ config(materialized='table') }}
with

pages as (
  select
    *,
    -- A page is known by the last part of its address: relative in some years, absolute in others.
    regexp_extract(coalesce(self_url, source_file), '([^/!]+)$', 1) as page_name,
    nullif(regexp_extract(coalesce(next_url, ''), '([^/]+)$', 1), '') as next_page_name
  from {{ ref('stg_feed_pages') }}
),

known as (
  select
    dataset,
    page_name,
    -- The newest page changes under one name: any of its editions will do.
    max(source_file) as source_file
  from (
    select
      dataset,
      page_name,
      source_file
    from pages
    union all
    select
      dataset,
      regexp_extract(source_file, '([^/!]+)$', 1) as page_name,
      source_file
    from pages
  ) as named
  group by dataset, page_name
),

chained as (
  select
    pages.source_file,
    pages.file_sha256,
    pages.dataset,
    pages.feed_id,
    pages.feed_updated,
    pages.self_url,
    pages.first_url,
    pages.prev_url,
    pages.next_url,
    known.source_file as next_source_file,
    pages.entries as entry_count,
    pages.tombstones as tombstone_count,
    pages.batch_id as _batch_id,
    pages.next_page_name is not null and known.source_file is null as is_gap
  from pages
  left join known
    on pages.dataset = known.dataset and pages.next_page_name = known.page_name
)

select * from chained
