with

rules as (
  {{ contract_rules() }}
)

select * from rules
