//go:build !race

package pace

const race = false
