package linux

// Spare is the name of an unwanted end of a veth.
func Spare(logical string) string { return spare(logical) }
