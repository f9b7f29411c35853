with

dead_letters as (
  select * from {{ ref('dead_letters') }}
),

summary as (
  select
    dataset,
    cast(processing_timestamp as date) as failure_date,
    stage,
    error_type,
    count(*) as failures,
    count(distinct source_file) as affected_files
  from dead_letters
  group by dataset, cast(processing_timestamp as date), stage, error_type
)

select * from summary
