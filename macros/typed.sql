{% macro typed(expression, type, format=none) %}
  {#- A text as a typed value that says what the text says, or null (law 9).

  Spark's own casts misread: "1,5" becomes 15, 1.239 becomes 1.24. So a pattern decides what is a
  value of the type, and only then try_cast converts. The SQL means the same with ANSI on and off.
  Blanks around a number or a date are no fault. -#}
  {%- if type.startswith('array<') -%}
    transform({{ expression }}, item -> {{ typed('item', type[6:-1], format) }})
  {%- elif type in ('string', 'native') -%}
    {{ expression }}
  {%- elif type == 'text' -%}
    trim({{ expression }})
  {%- elif type in ('int', 'bigint') -%}
    case
      when trim({{ expression }}) rlike '^[+-]?[0-9]{1,19}\\z'
        then try_cast(trim({{ expression }}) as {{ type }})
    end
  {%- elif type.startswith('decimal(') -%}
    {%- set precision, scale = type[8:-1].split(',') -%}
    case
      when trim({{ expression }})
        rlike '^[+-]?[0-9]{1,{{ precision | int - scale | int }}}(\\.[0-9]{1,{{ scale | int }}}0*)?\\z'
        then try_cast(trim({{ expression }}) as {{ type }})
    end
  {%- elif type == 'boolean' -%}
    case trim({{ expression }}) when 'true' then true when 'false' then false end
  {%- elif type == 'date' -%}
    case
      when trim({{ expression }})
        rlike '^[0-9]{4}-[0-9]{2}-[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2})?\\z'
        then try_cast(substring(trim({{ expression }}), 1, 10) as date)
    end
  {%- elif type == 'instant' -%}
    case
      when trim({{ expression }}) rlike
        '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,6}0*)?(Z|[+-][0-9]{2}:[0-9]{2})\\z'
        then try_cast(trim({{ expression }}) as timestamp)
    end
  {%- elif type == 'timestamp' -%}
    case
      when
        date_format(try_to_timestamp(trim({{ expression }}), '{{ format }}'), '{{ format }}')
        = trim({{ expression }})
        then try_to_timestamp(trim({{ expression }}), '{{ format }}')
    end
  {%- else -%}
    {{ exceptions.raise_compiler_error(
      "Type '" ~ type ~ "' is unknown. Types: string, text, int, bigint, decimal(p,s), boolean, "
      ~ "date, instant, timestamp (with format), native, and array<...> of these.") }}
  {%- endif -%}
{% endmacro %}


{% macro misfit(raw, value, type) %}
  {#- Whether there was a text that did not convert. Never null. -#}
  {%- if type.startswith('array<') -%}
    coalesce(exists({{ misfits_of(raw, value) }}, item -> item is not null), false)
  {%- else -%}
    coalesce(trim({{ raw }}) <> '', false) and {{ value }} is null
  {%- endif -%}
{% endmacro %}


{% macro misfit_text(field) %}
  {#- What a value that did not convert says, in words: `qty is 'two'`. -#}
  {%- if field.type.startswith('array<') -%}
    concat(
      '{{ field.name }} holds \'',
      get(filter({{ misfits_of('raw_' ~ field.name, field.name) }}, item -> item is not null), 0),
      '\''
    )
  {%- else -%}
    concat('{{ field.name }} is \'', raw_{{ field.name }}, '\'')
  {%- endif -%}
{% endmacro %}


{% macro misfits_of(raw, value) %}
  {#- Of two arrays, the texts whose value is null; null in the place of the others. -#}
zip_with({{ raw }}, {{ value }}, (text, value) -> case when trim(text) <> '' and value is null then text end)
{%- endmacro %}
