{{ config(materialized='table') }}
with

buyers as (
  select
    case
      when dir3_code is not null then 'DIR3'
      when tax_id is not null then 'NIF'
      when platform_id is not null then 'ID_PLATAFORMA'
    end as party_id_scheme,
    coalesce(dir3_code, tax_id, platform_id) as party_id,
    party_name,
    'buyer' as party_role,
    entry_updated
  from {{ ref('placsp_buyers') }}
),

winners as (
  select
    party_id_scheme,
    party_id,
    party_name,
    'winner' as party_role,
    entry_updated
  from {{ ref('placsp_winners') }}
),

superiors as (
  select
    party_id_scheme,
    party_id,
    party_name,
    'superior' as party_role,
    entry_updated
  from {{ ref('placsp_buyer_hierarchy') }}
),

every_mention as (
  select * from buyers
  union all
  select * from winners
  union all
  select * from superiors
),

mentions as (
  select
    *,
    -- The id of a joint venture is a running number of its entry, and some parties have none: the
    -- name tells these apart.
    case
      when coalesce(party_id_scheme, 'UTE') = 'UTE' or party_id is null then party_name
    end as distinct_name
  from every_mention
),

parties as (
  select
    party_id_scheme,
    party_id,
    max_by(party_name, struct(entry_updated, party_name)) as party_name,
    array_sort(collect_set(party_role)) as party_roles,
    count(*) as mention_count,
    min(entry_updated) as first_seen_at,
    max(entry_updated) as last_seen_at
  from mentions
  group by party_id_scheme, party_id, distinct_name
)

select * from parties
