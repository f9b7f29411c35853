{% macro sql_string(text) %}
  {#- A text as a Spark SQL string literal: backslash first, then the apostrophe. -#}
  {%- if text is none -%}cast(null as string)
  {%- else -%}'{{ (text | string).replace('\\', '\\\\').replace("'", "\\'").replace('\n', ' ') }}'
  {%- endif -%}
{% endmacro %}
