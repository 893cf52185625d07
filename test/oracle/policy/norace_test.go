//go:build !race

package policy_test

const slowdown = 1
