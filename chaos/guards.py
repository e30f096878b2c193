"""The guards that the promises rest on, each with what removes it and what must fail then."""

from chaos.guards_of_moves import GUARDS_OF_MOVES
from chaos.guards_of_sampling import GUARDS_OF_SAMPLING
from chaos.guards_of_services import GUARDS_OF_SERVICES

GUARDS = (*GUARDS_OF_MOVES, *GUARDS_OF_SAMPLING, *GUARDS_OF_SERVICES)
