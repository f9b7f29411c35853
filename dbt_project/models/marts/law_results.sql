{{ law_results() }}
