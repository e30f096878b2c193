"""The guards that the promises rest on, each with what removes it and what must fail then."""

from tests.guards.guards_of_confinement import GUARDS_OF_CONFINEMENT
from tests.guards.guards_of_dialects import GUARDS_OF_DIALECTS
from tests.guards.guards_of_doors import GUARDS_OF_DOORS
from tests.guards.guards_of_gateway import GUARDS_OF_GATEWAY
from tests.guards.guards_of_grading import GUARDS_OF_GRADING
from tests.guards.guards_of_launching import GUARDS_OF_LAUNCHING
from tests.guards.guards_of_leases import GUARDS_OF_LEASES
from tests.guards.guards_of_placement import GUARDS_OF_PLACEMENT
from tests.guards.guards_of_rewards import GUARDS_OF_REWARDS
from tests.guards.guards_of_runs import GUARDS_OF_RUNS
from tests.guards.guards_of_sampling import GUARDS_OF_SAMPLING
from tests.guards.guards_of_sandboxes import GUARDS_OF_SANDBOXES
from tests.guards.guards_of_servers import GUARDS_OF_SERVERS
from tests.guards.guards_of_services import GUARDS_OF_SERVICES
from tests.guards.guards_of_swe import GUARDS_OF_SWE
from tests.guards.guards_of_tls import GUARDS_OF_TLS
from tests.guards.guards_of_tokens import GUARDS_OF_TOKENS

GUARDS = (
    *GUARDS_OF_LEASES,
    *GUARDS_OF_SERVERS,
    *GUARDS_OF_PLACEMENT,
    *GUARDS_OF_RUNS,
    *GUARDS_OF_SAMPLING,
    *GUARDS_OF_SERVICES,
    *GUARDS_OF_REWARDS,
    *GUARDS_OF_SANDBOXES,
    *GUARDS_OF_CONFINEMENT,
    *GUARDS_OF_GRADING,
    *GUARDS_OF_TOKENS,
    *GUARDS_OF_TLS,
    *GUARDS_OF_DIALECTS,
    *GUARDS_OF_GATEWAY,
    *GUARDS_OF_DOORS,
    *GUARDS_OF_SWE,
    *GUARDS_OF_LAUNCHING,
)
