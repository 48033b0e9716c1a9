"""Sources other than topics: an application that begins with files ends with the same tables as one that reads only topics."""
