"""Heavy modules are imported inside of a tool, so its first call, and all calls beside it, wait for the imports.

cites: jgravelle/jdocmunch-mcp#19 docling-project/docling-mcp#98
state: first
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio http
names: CHART NAME chart
numbers: BARS=8..16
load: CHART callers 4..5 calls 2
load: NAME callers 5..6 calls 2..3 pause 5..20
mend: load-at-start
thing: import or imports or imported
holder: CHART or chart
"""

#: mended
import numpy
import sqlalchemy
from PIL import Image, ImageDraw
from sqlalchemy.orm import Session
#: end


def chart(text: str) -> tuple[int, int]:
    #: sick
    import numpy  #!
    import sqlalchemy  #!
    from PIL import Image, ImageDraw  #!
    from sqlalchemy.orm import Session  #!
    #: end

    query = " union all ".join(f"select {(len(text) + number) * 17 % 23}" for number in range(BARS))
    with Session(sqlalchemy.create_engine("sqlite://")) as session:
        heights = numpy.array(session.execute(sqlalchemy.text(query)).scalars().all())
    picture = Image.new("L", (BARS * 4, 24))
    draw = ImageDraw.Draw(picture)
    for number, height in enumerate(heights):
        draw.rectangle((number * 4, 24 - int(height), number * 4 + 2, 24), fill=255)
    return int(numpy.median(heights)), sum(picture.histogram()[255:])


@server.tool()
async def CHART(text: str) -> str:
    median, white = chart(text)  #!
    return f"{text}: median {median}, {white} white"


@server.tool()
async def NAME(text: str) -> str:
    return text.title()
