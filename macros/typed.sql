{% macro typed(expression, type, format=none, decimal_sign='.', thousands_mark='') %}
  {#- A text as a typed value that says what the text says, or null (law 9).

  Spark's own casts misread: "1,5" becomes 15, 1.239 becomes 1.24. So a pattern decides what is a
  value of the type, and only then try_cast converts. The SQL means the same with ANSI on and off.
  Blanks around a number or a date are no fault. -#}
  {%- if type.startswith('array<') -%}
    transform(
      {{ expression }}, item -> {{ typed('item', type[6:-1], format, decimal_sign, thousands_mark) }}
    )
  {%- elif type in ('string', 'native') -%}
    {{ expression }}
  {%- elif type == 'text' -%}
    trim({{ expression }})
  {%- elif type in ('int', 'bigint') -%}
    case
      when trim({{ expression }})
        rlike {{ sql_string('^[+-]?' ~ digits_pattern(19, thousands_mark) ~ '\\z') }}
        then try_cast({{ plain_number(expression, '', thousands_mark) }} as {{ type }})
    end
  {%- elif type.startswith('decimal(') -%}
    {%- set precision, scale = type[8:-1].split(',') -%}
    case
      when trim({{ expression }}) rlike {{ sql_string(
        '^[+-]?' ~ digits_pattern(precision | int - scale | int, thousands_mark)
        ~ '([' ~ decimal_sign ~ '][0-9]{1,' ~ scale | int ~ '}0*)?\\z'
      ) }}
        then try_cast({{ plain_number(expression, decimal_sign, thousands_mark) }} as {{ type }})
    end
  {%- elif type == 'boolean' -%}
    case trim({{ expression }}) when 'true' then true when 'false' then false end
  {%- elif type == 'date' and not format -%}
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
  {%- elif type in ('timestamp', 'date') -%}
    cast({{ formatted_time(expression, [format] if format is string else format) }} as {{ type }})
  {%- else -%}
    {{ exceptions.raise_compiler_error(
      "Type '" ~ type ~ "' is unknown. Types: string, text, int, bigint, decimal(p,s), boolean, "
      ~ "date, instant, timestamp (with format), native, and array<...> of these.") }}
  {%- endif -%}
{% endmacro %}


{% macro digits_pattern(most, thousands_mark) %}
  {#- A pattern for whole digits, with or without the mark after every third from the right. -#}
  {%- if thousands_mark -%}
([0-9]{1,{{ most }}}|[0-9]{1,3}([{{ thousands_mark }}][0-9]{3})+)
  {%- else -%}
[0-9]{1,{{ most }}}
  {%- endif -%}
{% endmacro %}


{% macro plain_number(expression, decimal_sign, thousands_mark) %}
  {#- A number's text as SQL writes numbers, from one with the marks of its locale. -#}
  {%- set from = (decimal_sign if decimal_sign != '.' else '') ~ thousands_mark -%}
  {%- if from -%}
translate(trim({{ expression }}), {{ sql_string(from) }}, '{{ '.' if decimal_sign not in ('', '.') }}')
  {%- else -%}
trim({{ expression }})
  {%- endif -%}
{% endmacro %}


{% macro formatted_time(expression, formats) %}
  {#- A text as the time that one of the formats would write as exactly this text. Null where none
  would, and where two would and mean different times: which is meant cannot be known. -#}
  {%- set times = [] -%}
  {%- for format in formats -%}
    {%- set parsed = 'try_to_timestamp(trim(' ~ expression ~ '), ' ~ sql_string(format) ~ ')' -%}
    {%- do times.append(
      'case when date_format(' ~ parsed ~ ', ' ~ sql_string(format) ~ ') = trim(' ~ expression
      ~ ') then ' ~ parsed ~ ' end'
    ) -%}
  {%- endfor -%}
  {%- if times | length == 1 -%}
    {{ times[0] }}
  {%- else -%}
    case
      when least({{ times | join(', ') }}) = greatest({{ times | join(', ') }})
        then least({{ times | join(', ') }})
    end
  {%- endif -%}
{% endmacro %}


{% macro can_misfit(type) %}
  {#- Whether a text may fail to convert to this type. -#}
  {{ return(type not in ['string', 'native', 'text', 'array<string>']) }}
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
  {#- What a value that did not convert says, in words: `qty is 'two'`. Not of a personal one: dead letters
  and reports show it. -#}
  {%- if field.pii -%}
    '{{ field.name }} is not shown, because it is personal'
  {%- elif field.type.startswith('array<') -%}
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
