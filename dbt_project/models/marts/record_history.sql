{{ record_history() }}
