from shiftbench.errors import argument as argument
from shiftbench.errors import check_names as check_names
from shiftbench.errors import listed as listed
from shiftbench.errors import required as required
from shiftbench.errors import shell_command as shell_command
