{{ rule_outcomes() }}
