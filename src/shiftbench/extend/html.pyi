from shiftbench.io.html import block as block
from shiftbench.io.html import image_grid as image_grid
from shiftbench.io.html import notes as notes
from shiftbench.io.html import title as title
