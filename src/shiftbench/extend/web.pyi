from shiftbench.reports.page.server import HEADERS as HEADERS
from shiftbench.reports.page.server import DeadlineProtocol as DeadlineProtocol
from shiftbench.reports.page.server import bind as bind
from shiftbench.reports.page.server import host_name as host_name
from shiftbench.reports.page.server import ip_address as ip_address
from shiftbench.reports.page.server import is_loopback as is_loopback
