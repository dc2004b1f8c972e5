//! Requests about who may do what: SASL, ACLs, tokens, credentials.

use super::{Field, array, bytes, int32, int64, int8, string};

/// SaslHandshake (API key 17).
pub(super) const SASL_HANDSHAKE: &[Field] = &[
    string("Mechanism"),
];

/// Which ACLs a request is about.
const ACL_FILTER: &[Field] = &[
    int8("ResourceTypeFilter"),
    string("ResourceNameFilter").nullable(),
    int8("PatternTypeFilter").from(1),
    string("PrincipalFilter").nullable(),
    string("HostFilter").nullable(),
    int8("Operation"),
    int8("PermissionType"),
];

/// DescribeAcls (API key 29).
pub(super) const DESCRIBE_ACLS: &[Field] = ACL_FILTER;

/// CreateAcls (API key 30).
pub(super) const CREATE_ACLS: &[Field] = &[
    array("Creations", &[
        int8("ResourceType"),
        string("ResourceName"),
        int8("ResourcePatternType").from(1),
        string("Principal"),
        string("Host"),
        int8("Operation"),
        int8("PermissionType"),
    ]),
];

/// DeleteAcls (API key 31).
pub(super) const DELETE_ACLS: &[Field] = &[
    array("Filters", ACL_FILTER),
];

/// SaslAuthenticate (API key 36).
pub(super) const SASL_AUTHENTICATE: &[Field] = &[
    bytes("AuthBytes"),
];

/// CreateDelegationToken (API key 38).
pub(super) const CREATE_DELEGATION_TOKEN: &[Field] = &[
    string("OwnerPrincipalType").from(3).nullable(),
    string("OwnerPrincipalName").from(3).nullable(),
    array("Renewers", &[
        string("PrincipalType"),
        string("PrincipalName"),
    ]),
    int64("MaxLifetimeMs"),
];

/// RenewDelegationToken (API key 39).
pub(super) const RENEW_DELEGATION_TOKEN: &[Field] = &[
    bytes("Hmac"),
    int64("RenewPeriodMs"),
];

/// ExpireDelegationToken (API key 40).
pub(super) const EXPIRE_DELEGATION_TOKEN: &[Field] = &[
    bytes("Hmac"),
    int64("ExpiryTimePeriodMs"),
];

/// DescribeDelegationToken (API key 41).
pub(super) const DESCRIBE_DELEGATION_TOKEN: &[Field] = &[
    array("Owners", &[
        string("PrincipalType"),
        string("PrincipalName"),
    ]).nullable(),
];

/// DescribeUserScramCredentials (API key 50).
pub(super) const DESCRIBE_USER_SCRAM_CREDENTIALS: &[Field] = &[
    array("Users", &[
        string("Name"),
    ]).nullable(),
];

/// AlterUserScramCredentials (API key 51).
pub(super) const ALTER_USER_SCRAM_CREDENTIALS: &[Field] = &[
    array("Deletions", &[
        string("Name"),
        int8("Mechanism"),
    ]),
    array("Upsertions", &[
        string("Name"),
        int8("Mechanism"),
        int32("Iterations"),
        bytes("Salt"),
        bytes("SaltedPassword"),
    ]),
];
