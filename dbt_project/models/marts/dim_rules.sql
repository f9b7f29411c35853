-- The rules are read from the contracts, which are the sources' own descriptions.
{% for record_type in var('record_types') %}
-- depends_on: {{ source('bronze', record_type) }}
{% endfor %}
with

rules as (
  {{ contract_rules() }}
)

select * from rules
