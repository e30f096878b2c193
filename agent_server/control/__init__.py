"""Control: how what runs is stopped, timed and parked."""
