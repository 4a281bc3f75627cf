"""Writing servers: `Server`, `Context`, and the types that tools, prompts and resources take and return."""

from .asking import Accepted as Accepted
from .asking import Declined as Declined
from .asking import Dismissed as Dismissed
from .asking import Elicited as Elicited
from .asking import Sampled as Sampled
from .branching import BranchOptions as BranchOptions
from .context import BranchGroup as BranchGroup
from .context import Context as Context
from .forms import Elicit as Elicit
from .forms import FormError as FormError
from .forms import Titled as Titled
from .options import OfferKeywords as OfferKeywords
from .prompts import PromptKeywords as PromptKeywords
from .resources import ResourceKeywords as ResourceKeywords
from .results import ToolResult as ToolResult
from .server import Server as Server
from .signature import Mirrored as Mirrored
from .tool import Tool as Tool
from .tool import ToolKeywords as ToolKeywords
