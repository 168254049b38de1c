"""Libraries and templates that one rare tool needs are imported and compiled before the server can answer.

cites: ruanchaves/hashformers#89, MarcusJellinghaus/mcp-workspace#212, palewire/datawrapper-mcp#82
state: start
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: stdio
names: FIND PRINT
numbers: SHEETS=350..450
load: FIND callers 2..3 calls 3..5
mend: load-later
thing: sqlalchemy or aiohttp or jinja2 or numpy or compile_sheets
"""

import functools

#: sick
import aiohttp  #!
import jinja2  #!
import numpy  #!
import PIL.Image  #!
import sqlalchemy.ext.asyncio  #!
import sqlalchemy.orm  #!
#: end

COLUMNS = ("name", "amount", "price", "discount", "total")


def compile_sheets() -> dict:
    #: mended
    import jinja2

    #: end
    environment = jinja2.Environment(autoescape=True)
    cells = "".join(
        "<td>{{ row.%s|default('-') if row.%s is defined else '' }}</td>" % (name, name) for name in COLUMNS
    )
    pages = (
        "<h1>{{ title|upper }} %d</h1>{%% for row in rows %%}<tr>%s</tr>{%% else %%}none{%% endfor %%}" % (n, cells)
        for n in range(SHEETS)
    )
    return {number: environment.from_string(page) for number, page in enumerate(pages)}  #!


#: sick
COMPILED = compile_sheets()  #!


#: mended
@functools.cache
def compiled() -> dict:
    return compile_sheets()


#: end


@server.tool()
async def FIND(text: str) -> str:
    return ", ".join(word for word in sorted(text.split()) if word.isalpha())


@server.tool()
async def PRINT(text: str) -> str:
    #: sick
    sheet = COMPILED[len(text) % SHEETS]
    #: mended
    import aiohttp
    import numpy
    import PIL.Image
    import sqlalchemy.ext.asyncio
    import sqlalchemy.orm

    sheet = compiled()[len(text) % SHEETS]
    #: end
    engine = sqlalchemy.ext.asyncio.create_async_engine("sqlite+aiosqlite://")
    async with engine.connect() as connection:
        rows = (await connection.execute(sqlalchemy.text("SELECT 'tea' AS name, 3 AS amount"))).mappings().all()
    logo = PIL.Image.fromarray(numpy.zeros((8, 8), dtype="uint8"))
    async with aiohttp.ClientSession() as session, session.get(f"{SERVICE}/5") as answer:
        return f"{sheet.render(title=text, rows=rows)} {logo.size} {answer.status}"
