"""Tokens of each role, for all Runs and for some."""

from rollyard.tokens import Role, parse_tokens

SECRET = {role: f"the-present-{role}-token" for role in Role}
OWN = ("own", "own-too")
"""The Runs to which some tokens are limited."""
LIMITED = {role: f"the-limited-{role}-token" for role in (Role.ADMIN, Role.SUBMIT, Role.READ)}
TOKENS = parse_tokens(
    "\n".join(
        [
            *(f"{role} {token}" for role, token in SECRET.items()),
            "admin the-next-admin-token",
            *(f"{role} {token} {','.join(OWN)}" for role, token in LIMITED.items()),
        ]
    ),
    "the test",
)
CREDENTIALS = {
    "none": "",
    "garbage": "Bearer \xff{}' OR 1=1",
    "rotated out": "Bearer the-previous-admin-token",
    **{role.value: f"Bearer {token}" for role, token in SECRET.items()},
}
