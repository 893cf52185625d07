package sim

// Return values of VPP 24.06 (vnet/error.h) that handlers of this package give.
const (
	rvUnspecified           int32 = -1
	rvInvalidSwIfIndex      int32 = -2
	rvNoSuchFIB             int32 = -3
	rvNoSuchEntry           int32 = -6
	rvInvalidValue          int32 = -7
	rvUnimplemented         int32 = -9
	rvInvalidSwIfIndex2     int32 = -10
	rvSyscallError1         int32 = -11
	rvSyscallError3         int32 = -13
	rvFeatureDisabled       int32 = -30
	rvInvalidRegistration   int32 = -31
	rvNoPathsInRoute        int32 = -52
	rvNoMatchingInterface   int32 = -54
	rvInvalidVLAN           int32 = -55
	rvVLANAlreadyExists     int32 = -56
	rvAddressNotFound       int32 = -60
	rvSubIfAlreadyExists    int32 = -68
	rvInvalidInterface      int32 = -71
	rvInvalidArgument       int32 = -73
	rvUnexpectedIfState     int32 = -74
	rvTunnelExists          int32 = -75
	rvIfAlreadyExists       int32 = -79
	rvSameSrcDst            int32 = -82
	rvClassifyTableNotFound int32 = -91
	rvInvalidAddressFam     int32 = -97
	rvInvalidSubSwIfIndex   int32 = -98
	rvAddressInUse          int32 = -105
	rvAddressFoundOnIf      int32 = -114
	rvEntryAlreadyExists    int32 = -116
	rvBDAlreadyExists       int32 = -119
	rvBDInUse               int32 = -120
	rvBDNotModifiable       int32 = -121
	rvBDIDExceedsMax        int32 = -122
	rvUnsupported           int32 = -126
	rvDuplicateIfAddress    int32 = -127
	rvACLInLookup           int32 = -149
	rvInstanceInUse         int32 = -147
	rvBDHasBVI              int32 = -152
	rvInvalidPrefixLength   int32 = -171
)
