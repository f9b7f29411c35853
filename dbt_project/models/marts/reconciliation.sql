{{ reconciliation() }}
