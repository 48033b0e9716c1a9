"""The measured applications, one program per side, as a user would write and start them."""
