"""Writing servers: `Server`, `Context`, and the types that tools, prompts and resources take and return."""

from .asking import (
    Accepted as Accepted,
    Declined as Declined,
    Dismissed as Dismissed,
    Elicited as Elicited,
    Sampled as Sampled,
)
from .branching import BranchOptions as BranchOptions
from .context import BranchGroup as BranchGroup, Context as Context
from .forms import Elicit as Elicit, FormError as FormError, Titled as Titled
from .prompts import PromptKeywords as PromptKeywords
from .resources import ResourceKeywords as ResourceKeywords
from .results import ToolResult as ToolResult
from .server import Server as Server
from .signature import Mirrored as Mirrored
from .tool import Tool as Tool, ToolKeywords as ToolKeywords
