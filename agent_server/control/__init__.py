"""Control of attempts: how they are stopped, timed and parked."""
