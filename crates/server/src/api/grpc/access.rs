//! Implements the gRPC access service.

use tenure_wire::v1;
use tonic::{Request, Response, Status};

use super::call::GrpcCall;
use crate::api::access::AccessCall;
use crate::dispatch::Dispatch;

pub(super) struct AccessApi {
    pub(super) dispatch: Dispatch,
}

/// Implements every call of the service by the method of [`AccessCall`] with the same name. Those in the second list
/// have no fields.
macro_rules! calls {
    ($($method:ident($request:ident) -> $response:ident;)+ / $($plain:ident($empty:ident) -> $shown:ident;)+) => {
        #[tonic::async_trait]
        impl v1::access_service_server::AccessService for AccessApi {
            $(
                async fn $method(
                    &self,
                    request: Request<v1::$request>,
                ) -> Result<Response<v1::$response>, Status> {
                    let (call, it) = GrpcCall::new(&self.dispatch, request)?;
                    let answer = access(&call).$method(it).await;
                    Ok(Response::new(answer.map_err(Status::from)?))
                }
            )+
            $(
                async fn $plain(
                    &self,
                    request: Request<v1::$empty>,
                ) -> Result<Response<v1::$shown>, Status> {
                    let (call, _) = GrpcCall::new(&self.dispatch, request)?;
                    let answer = access(&call).$plain().await;
                    Ok(Response::new(answer.map_err(Status::from)?))
                }
            )+
        }
    };
}

calls! {
    set_identity(SetIdentityRequest) -> SetIdentityResponse;
    set_default_quotas(SetDefaultQuotasRequest) -> SetDefaultQuotasResponse;
    can(CanRequest) -> CanResponse;
    list_roles(ListRolesRequest) -> ListRolesResponse;
    put_role(PutRoleRequest) -> PutRoleResponse;
    delete_role(DeleteRoleRequest) -> DeleteRoleResponse;
    list_principals(ListPrincipalsRequest) -> ListPrincipalsResponse;
    get_principal(GetPrincipalRequest) -> GetPrincipalResponse;
    put_principal(PutPrincipalRequest) -> PutPrincipalResponse;
    enable_principal(EnablePrincipalRequest) -> EnablePrincipalResponse;
    delete_principal(DeletePrincipalRequest) -> DeletePrincipalResponse;
    list_api_keys(ListApiKeysRequest) -> ListApiKeysResponse;
    create_api_key(CreateApiKeyRequest) -> CreateApiKeyResponse;
    rotate_api_key(RotateApiKeyRequest) -> RotateApiKeyResponse;
    revoke_api_key(RevokeApiKeyRequest) -> RevokeApiKeyResponse;
    put_certificate_rule(PutCertificateRuleRequest) -> PutCertificateRuleResponse;
    delete_certificate_rule(DeleteCertificateRuleRequest) -> DeleteCertificateRuleResponse;
    put_issuer(PutIssuerRequest) -> PutIssuerResponse;
    delete_issuer(DeleteIssuerRequest) -> DeleteIssuerResponse;
    /
    status(AccessStatusRequest) -> AccessStatusResponse;
    list_certificate_rules(ListCertificateRulesRequest) -> ListCertificateRulesResponse;
    list_issuers(ListIssuersRequest) -> ListIssuersResponse;
}

fn access(call: &GrpcCall) -> AccessCall<'_> {
    AccessCall {
        dispatch: &call.dispatch,
        who: call.who.clone(),
        id: call.id(),
        within: call.within(),
    }
}
