{{ child_rows('placsp_entries') }}
