"""Parts that all HTTP services share: serving, access, answers, errors and logs."""
