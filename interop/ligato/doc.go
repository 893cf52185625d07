// Package ligato turns what ligato's own vpp-agent v2.5.1 makes into what this agent makes of it and back, as an independent witness.
// Invariant: the product never imports it, nor it the product's insides beyond what a program outside would use.
package ligato
