import kit

db = kit.everywhere
