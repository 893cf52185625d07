//go:build race

package pace

const race = true
