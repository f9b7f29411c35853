{{ recurring_causes() }}
