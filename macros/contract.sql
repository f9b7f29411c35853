{% macro contract(record_type) %}
  {#- The contract of a record type, as it stands in its source YAML (config.meta.contract). -#}
  {% if not execute %}{{ return({'fields': [], 'rules': [], 'key': [], 'order_by': none}) }}{% endif %}
  {% set source_id = 'source.lakehouse.bronze.' ~ record_type %}
  {% if source_id not in graph.sources %}
    {{ exceptions.raise_compiler_error(
      "No contract for record type '" ~ record_type ~ "'. Add a table of that name to the source "
      ~ "'bronze' in dbt_project/models/bronze/, with config.meta.contract.") }}
  {% endif %}
  {{ return(graph.sources[source_id].config.meta.contract) }}
{% endmacro %}


{% macro contracts() %}
  {#- Every contract by record type, sorted by name. -#}
  {% set found = {} %}
  {% if execute %}
    {% for node in graph.sources.values() | sort(attribute='name') %}
      {% if node.source_name == 'bronze' and node.config.meta.contract %}
        {% do found.update({node.name: node.config.meta.contract}) %}
      {% endif %}
    {% endfor %}
  {% endif %}
  {{ return(found) }}
{% endmacro %}


{% macro verdict_contract(record_type) %}
  {#- Version and hash of what decides a verdict: the contract of the record type, but for what is done
  with refused records later and when somebody is told. Of `children_of_<record type>`, the hash of the
  contracts of its children; of `catalogue`, its version. -#}
  {% if not execute %}{{ return('') }}{% endif %}
  {% if record_type == 'catalogue' %}{{ return(catalogue_version()) }}{% endif %}
  {% if record_type.startswith('children_of_') %}
    {{ return(local_md5(tojson(children_of(record_type[12:]), sort_keys=true))[:12]) }}
  {% endif %}
  {% set terms = dict(contract(record_type)) %}
  {% do terms.pop('retry', none) %}
  {% do terms.pop('max_attempts', none) %}
  {% do terms.pop('alerts', none) %}
  {% do terms.pop('retention', none) %}
  {{ return(terms.version ~ '+' ~ local_md5(tojson(terms, sort_keys=true))[:12]) }}
{% endmacro %}


{% macro verdict_contracts(record_types) %}
  {#- One text for the contracts that a derived table hangs on. -#}
  {% set texts = [] %}
  {% for record_type in record_types %}{% do texts.append(verdict_contract(record_type)) %}{% endfor %}
  {{ return(texts | join(' ')) }}
{% endmacro %}


{% macro own_contracts() %}
  {#- One text for the contracts that the model at hand hangs on, `verdicts_of` of its meta; asked once. -#}
  {% if not execute %}{{ return('') }}{% endif %}
  {% if model.get('_own_contracts') is none %}
    {% do model.update({'_own_contracts': verdict_contracts(model.config.meta.verdicts_of)}) %}
  {% endif %}
  {{ return(model['_own_contracts']) }}
{% endmacro %}
